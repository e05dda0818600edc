"""Where archives are stored: folders of Parquet files, Delta tables, Iceberg tables.

Spark's tasks write the Parquet files of a micro-batch; the driver adds them to the table. ``names``
and ``statistics`` decide without I/O; ``files`` uses Spark's file systems; ``parquet``, ``delta``
and ``iceberg`` are the formats. Delta and Iceberg tables are changed by their own Python libraries,
so that no jar has to fit the version of Spark.
"""

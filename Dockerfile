# Proxy, embedded broker and nameserver in one image: `orderlane proxy`, `broker`, `nameserver`, `up`.
# The chart in helm/ runs it.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md pyspark_orderlane.py ./
COPY requirements requirements
COPY broker_core broker_core
COPY proxy proxy
COPY thin_client thin_client
COPY thrift_idl thrift_idl
# What comes from outside comes by its SHA-256 alone, what builds it too. The image gets the wheels that
# were made of it.
RUN python -m venv build-venv \
    && build-venv/bin/python -m pip install --no-cache-dir --require-hashes --no-deps \
        -r requirements/build.txt \
    && build-venv/bin/python -m pip wheel --no-cache-dir --require-hashes --no-deps --no-build-isolation \
        -w wheels -r requirements/server.txt \
    && build-venv/bin/python -m pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation \
        -w wheels . \
    && python -m venv --without-pip /opt/orderlane \
    && build-venv/bin/python -m pip --python /opt/orderlane/bin/python install --no-cache-dir \
        --no-index --find-links wheels "orderlane[server,redis,tracing]"

FROM python:3.11-slim
# The data of a broker; a volume in earnest.
RUN install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/orderlane /opt/orderlane
ENV PATH=/opt/orderlane/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes sees that it is not root.
USER 10001:10001
WORKDIR /data
# thrift, http, broker, nameserver
EXPOSE 9713 9714 10911 9876
ENTRYPOINT ["orderlane"]
CMD ["up", "--data", "/data"]

# Proxy, embedded broker and nameserver in one image: `orderlane proxy`, `broker`, `nameserver`, `up`.
# The chart in helm/ runs it. Name the base by its digest where a registry can be asked:
#   docker build --build-context python:3.11-slim=docker-image://python@sha256:DIGEST .
FROM python:3.11-slim AS build
# Files of wheels have this time, so that the same sources give the same layer.
ENV SOURCE_DATE_EPOCH=315532800
WORKDIR /source
COPY pyproject.toml LICENSE pyspark_orderlane.py ./
COPY requirements requirements
COPY broker_core broker_core
COPY orderlane orderlane
COPY proxy proxy
COPY testkit testkit
COPY thin_client thin_client
COPY thrift_idl thrift_idl
COPY tools/packages tools/packages
# What comes from outside comes by its SHA-256 alone, what builds it too. The image gets the wheels that
# were made of it, and our own: orderlane, and orderlane-server from sources that tools.packages writes.
# They are compiled here, since a container may not write: otherwise each start would compile all
# modules. With hashes in place of times, the same sources give the same files.
RUN python -m venv build-venv \
    && build-venv/bin/python -m pip install --no-cache-dir --require-hashes --no-deps \
        -r requirements/build.txt \
    && build-venv/bin/python -m pip wheel --no-cache-dir --require-hashes --no-deps --no-build-isolation \
        -w wheels -r requirements/server.txt \
    && build-venv/bin/python -m pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation \
        -w wheels . \
    && build-venv/bin/python -m tools.packages server \
    && build-venv/bin/python -m pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation \
        -w wheels ./server \
    && python -m venv --without-pip /opt/orderlane \
    && build-venv/bin/python -m pip --python /opt/orderlane/bin/python install --no-cache-dir --no-compile \
        --no-index --find-links wheels "orderlane[server,redis,tracing]" \
    && /opt/orderlane/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/orderlane/lib

FROM python:3.11-slim
# The data of a broker; a volume in earnest.
RUN install --directory --owner=10001 --group=10001 /data
# `up` as the image runs it by itself: its Thrift port can be published. Without principals in the settings
# every client that reaches it is served, so publish it on trusted networks only. HTTP, broker and
# nameserver stay on the loopback.
RUN printf 'listen:\n  thrift: 0.0.0.0:9713\n' > /etc/orderlane.yaml
COPY --from=build /opt/orderlane /opt/orderlane
ENV PATH=/opt/orderlane/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes sees that it is not root.
USER 10001:10001
WORKDIR /data
# thrift, http, broker, the broker's metrics, nameserver
EXPOSE 9713 9714 10911 10914 9876
# One of the roles' ports accepts connections: http, broker or nameserver.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import socket; p = (9714, 10911, 9876); s = socket.socket; raise SystemExit(all(s().connect_ex(('127.0.0.1', n)) for n in p))"]
ENTRYPOINT ["orderlane"]
CMD ["up", "--data", "/data", "--settings", "/etc/orderlane.yaml"]

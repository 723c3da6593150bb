# Penstock with Spark and Java. Built from a checkout: docker build -t penstock .
#   docker run --init -v ./pipelines:/pipelines -v penstock-state:/state penstock
FROM python:3.12-slim-bookworm AS build
WORKDIR /build
COPY constraints.txt ./
COPY packages ./packages
RUN python -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --no-cache-dir -c constraints.txt \
        ./packages/penstock-protocol ./packages/penstock-sdk "./packages/penstock[spark,postgres,kafka]"

FROM python:3.12-slim-bookworm
# The versions of Debian's packages are those of the base image's release; pinning one breaks the build when it is replaced.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home penstock \
    && install --directory --owner penstock --mode 0700 /state \
    && install --directory --owner penstock /pipelines /var/cache/penstock
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH \
    XDG_CACHE_HOME=/var/cache/penstock \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /pipelines
# The class archive: every start is seconds quicker.
RUN python -m penstock.cli.archive
VOLUME /state
# Healthy: an engine holds the state folder, and its account can be read.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["penstock", "pipelines", "list", "--running", "--state", "/state"]
ENTRYPOINT ["penstock"]
CMD ["run", "/pipelines", "--state", "/state"]

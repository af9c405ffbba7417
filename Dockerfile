# The evaluation in a container: docs/containers.md.
#
#     docker build -t assay .
#     docker run --rm -v "$PWD/results:/results" assay run --episodes 5
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# For builds without a network: a folder with wheels, inside of this one.
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
# Extras such as [bench] or [local].
ARG EXTRAS=

COPY . /tmp/assay
RUN cd /tmp/assay \
    && python3 -m pip install --no-cache-dir --constraint constraints.txt ".${EXTRAS}" \
    && cd / && rm -rf /tmp/assay

# Compiled here once, and not at the start of every job.
ENV ASSAY_CACHE_DIR=/var/cache/assay
RUN python3 -m assay warmup && chmod -R a+rX "$ASSAY_CACHE_DIR"

# A job is killed with its container: what it wrote is in the mounted folder.
WORKDIR /results
ENTRYPOINT ["python3", "-m", "assay"]
CMD ["--help"]

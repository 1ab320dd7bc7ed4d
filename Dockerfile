# oneswitchd, nfagent, nf, unoctl and uno-lab, with Open vSwitch for emulated servers. docker-compose.yml runs it; docs/containers.md explains.
#
# What is installed from where is tools/prepare's to know; the Python packages are those of requirements.lock, the crates
# those of Cargo.lock.
ARG BASE_IMAGE=docker.io/library/debian:bookworm-20250520-slim

FROM ${BASE_IMAGE} AS builder
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/oneswitch
COPY Cargo.lock Cargo.toml LICENSE Makefile README.md clippy.toml pyproject.toml requirements.lock ./
COPY packaging/cargo-static packaging/cargo-static
COPY tools/prepare tools/prepare
COPY examples examples
COPY lab lab
COPY nfagent nfagent
COPY nfs nfs
COPY oneswitch oneswitch
COPY placement placement
COPY server server
COPY unoctl unoctl
# `make build` links the programs into .venv; the image has them there, without the rest of target/.
RUN make build EXTRAS=examples,tracing \
    && for program in oneswitchd nf nf-dpi; do cp --remove-destination "$(readlink -f .venv/bin/$program)" .venv/bin/$program; done \
    && .venv/bin/python -m compileall -q lab nfagent placement server unoctl \
    && rm -rf target /root/.cargo /var/lib/apt/lists/*

FROM ${BASE_IMAGE}
ENV DEBIAN_FRONTEND=noninteractive
WORKDIR /opt/oneswitch
COPY tools/prepare tools/prepare
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl libndpi-bin openssh-client python3 \
    && tools/prepare run \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home uno && install -d -o uno -g uno /srv/uno /var/lib/uno
COPY --from=builder /opt/oneswitch /opt/oneswitch
COPY packaging/container packaging/container
ENV PATH=/opt/oneswitch/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    UNO_LAB_DIR=/srv/uno
USER uno
CMD ["uno-lab", "--help"]

# attnd in a container: compiled in one stage, shipped alone in the other.
# The image holds the daemon, the libraries it loads and their licences; no
# shell, no package manager, and nothing that its user may write.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        gcc libc6-dev make pkg-config \
        libgnutls28-dev libmicrohttpd-dev libopenblas-pthread-dev \
        libzstd-dev zlib1g-dev
WORKDIR /src
COPY Makefile LICENSE ./
COPY api api
COPY config config
COPY core core
COPY server server
RUN make -j"$(nproc)" build/attnd \
    && install -D -s build/attnd /image/usr/bin/attnd \
    && install -D -m 644 LICENSE /image/usr/share/doc/attnd/copyright

# What the loader would load, found by asking it; a library it can't find
# fails the cp. Each library's package keeps its licence and its record in
# dpkg/status.d, where scanners look in images without a package manager.
RUN set -eu; libs=$(ldd build/attnd | \
        awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }'); \
    cp -L --parents $libs /image; \
    mkdir -p /image/var/lib/dpkg/status.d; \
    for lib in $libs; do \
        file=$(realpath "$lib"); \
        dpkg -S "$file" 2>/dev/null || dpkg -S "${file#/usr}"; \
    done | cut -d: -f1 | sort -u | while read -r package; do \
        cp -L --parents "/usr/share/doc/$package/copyright" /image; \
        dpkg -s "$package" > "/image/var/lib/dpkg/status.d/$package"; \
    done

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="attnd" \
      org.opencontainers.image.description="Multi-head attention over HTTP" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image /
# OpenBLAS reads its variable before main() runs: the workers are the threads.
ENV ATTND_LISTEN=0.0.0.0:8080 OPENBLAS_NUM_THREADS=1
EXPOSE 8080
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["/usr/bin/attnd", "--healthcheck"]
ENTRYPOINT ["/usr/bin/attnd"]

# What a plain "docker build ." says of itself; a release gives its own.
ARG VERSION=2.0.0-dev
ARG COMMIT=

# The digest of a base decides what is used. Its tag tells people, and what updates both, which one that is.
# The builder runs on the machine's own platform and cross-compiles, which is much faster than emulation.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26.8@sha256:6c2a5538f964f1c82f97ad14988bf05de100d922d159d0e398b54c7b0ca0c6c9 AS build

WORKDIR /src

COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download

COPY main.go ./
COPY controllers ./controllers
COPY internal ./internal

ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
# Paths and what git knows are left out, so that the same source is the same binary in every folder.
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X github.com/piraeusdatastore/piraeus-ha-controller/internal/version.version=$VERSION -X github.com/piraeusdatastore/piraeus-ha-controller/internal/version.revision=$COMMIT" \
      -o bin/piraeus-ha-controller .

FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab

ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title="Piraeus High Availability Controller" \
      org.opencontainers.image.description="Moves stateful workloads away from nodes that have lost their LINSTOR storage." \
      org.opencontainers.image.url="https://github.com/piraeusdatastore/piraeus-ha-controller" \
      org.opencontainers.image.source="https://github.com/piraeusdatastore/piraeus-ha-controller" \
      org.opencontainers.image.documentation="https://github.com/piraeusdatastore/piraeus-ha-controller/tree/main/docs" \
      org.opencontainers.image.vendor="The Piraeus Maintainers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"

COPY --from=build /src/bin/piraeus-ha-controller /piraeus-ha-controller

# By number, so that Kubernetes can see that it is not root.
USER 65532:65532

ENTRYPOINT ["/piraeus-ha-controller"]

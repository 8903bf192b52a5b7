# The builder runs on the machine's own platform and cross-compiles, which is much faster than emulation.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26 AS build

WORKDIR /src

COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download

COPY main.go ./
COPY controllers ./controllers
COPY internal ./internal

ARG TARGETOS
ARG TARGETARCH
# Empty means the development version that internal/version knows.
ARG VERSION=
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath \
      -ldflags "-s -w -X github.com/piraeusdatastore/piraeus-ha-controller/internal/version.version=$VERSION" \
      -o /out/piraeus-ha-controller .

FROM gcr.io/distroless/static-debian12:nonroot

LABEL org.opencontainers.image.title="Piraeus High Availability Controller" \
      org.opencontainers.image.source="https://github.com/piraeusdatastore/piraeus-ha-controller" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY --from=build /out/piraeus-ha-controller /piraeus-ha-controller

# By number, so that Kubernetes can see that it is not root.
USER 65532:65532

ENTRYPOINT ["/piraeus-ha-controller"]

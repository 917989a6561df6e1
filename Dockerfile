# The one binary, for every role: docker run IMAGE api, worker, migrate, ... The image holds no shell.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# What "duebox version" says: docker build --build-arg VERSION="$(git describe --tags --always --dirty)".
ARG VERSION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w -X main.linkedVersion=$VERSION" -o /duebox ./cmd/duebox

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /duebox /duebox
# Nobody in particular: nothing is written to disk.
USER 65532:65532
# HTTP_ADDR and WORKER_HTTP_ADDR default to loopback, which is out of reach from outside of a container: set them, and ADMIN_TOKEN (the API also wants API_TOKEN).
EXPOSE 8080 9090
ENTRYPOINT ["/duebox"]

# Two images from this checkout, without a compiler: every dependency is a wheel.
#
#   docker build --target serve -t foldline-serve .
#   docker build --target proxy -t foldline-proxy .
#
# Neither holds a key or a token. Both listen on all addresses of the container, so they end at once without FOLDLINE_TOKEN.
# docs/deploy.md says how to run them.

ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
WORKDIR /src
RUN python -m venv /opt/foldline
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src src
# The versions that were tested; extras without the model server, which is as large as all the others.
RUN /opt/foldline/bin/pip install --no-cache-dir --only-binary=:all: --constraint constraints.txt \
      '.[exact,mcp,otel,postgresql,proxy,schedule,telegram]' \
 && /opt/foldline/bin/pip uninstall --yes --quiet pip

FROM python:${PYTHON} AS base
RUN useradd --system --uid 10001 --home-dir /var/lib/foldline --shell /usr/sbin/nologin foldline \
 && install -d -o foldline -g foldline -m 0700 /var/lib/foldline /workspace
COPY --from=build /opt/foldline /opt/foldline
ENV PATH=/opt/foldline/bin:$PATH \
    FOLDLINE_HOME=/var/lib/foldline \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /workspace
VOLUME /var/lib/foldline
STOPSIGNAL SIGTERM

FROM base AS proxy
EXPOSE 8790
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8790/foldline/health', timeout=4)"]
ENTRYPOINT ["foldline", "proxy", "--host", "0.0.0.0"]
CMD ["--help"]

FROM base AS serve
EXPOSE 8791
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8791/health', timeout=4)"]
ENTRYPOINT ["foldline", "serve", "--host", "0.0.0.0"]

# The service: the same image answers requests and solves; SHARDWRIGHT_ROLE says which.
FROM python:3.11-slim-bookworm
RUN useradd --system --create-home --home-dir /var/lib/shardwright shardwright
RUN python -m venv /opt/shardwright
COPY requirements-install.lock requirements.lock /app/
RUN /opt/shardwright/bin/pip install --no-cache-dir --require-hashes -r /app/requirements-install.lock \
 && /opt/shardwright/bin/uv pip install --python /opt/shardwright/bin/python --no-cache --require-hashes -r /app/requirements.lock
COPY . /app/
RUN /opt/shardwright/bin/uv pip install --python /opt/shardwright/bin/python --no-cache --no-deps --no-build-isolation --editable /app
ENV PATH=/opt/shardwright/bin:$PATH PYTHONUNBUFFERED=1 SHARDWRIGHT_DATA_DIR=/var/lib/shardwright
USER shardwright
WORKDIR /var/lib/shardwright
EXPOSE 8000
ENTRYPOINT ["shardwright"]
CMD ["serve"]

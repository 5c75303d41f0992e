"""What only shows on a real connection: bodies that are too large or too slow are refused before they have arrived."""
import contextlib
import signal
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.service.test_crash import Server

HEAD = "POST /v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    s = Server(tmp_path_factory.mktemp("wire"), None, BODY_TIMEOUT_S="1")
    s.start().close()
    yield s
    s.end(signal.SIGKILL)


def spoken(server: Server, sent: bytes, patience_s: float = 5.0) -> bytes:
    """What the service answers to these bytes when nothing follows them."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience_s) as s:
        answer = b""
        with contextlib.suppress(ConnectionError):          # a service that has heard enough may hang up
            s.sendall(sent)
            while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
                more = s.recv(65536)
                if not more:
                    break
                answer += more
        return answer


def test_a_length_beyond_the_bound_is_refused_before_the_body(server: Server) -> None:
    begun_s = time.monotonic()
    answer = spoken(server, (HEAD + "Content-Length: 100000000\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 413") and b"at most 8388608 bytes" in answer
    assert time.monotonic() - begun_s < 0.9


def test_chunks_beyond_the_bound_are_refused_before_their_end(server: Server) -> None:
    size = 8 * 2**20 + 1
    answer = spoken(server, (HEAD + f"Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n").encode() + b" " * size)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_not_waited_for(server: Server) -> None:
    answer = spoken(server, (HEAD + "Content-Length: 10\r\n\r\n{").encode())
    assert answer.startswith(b"HTTP/1.1 408") and b"within 1 s" in answer


@pytest.mark.parametrize("sent", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                  b"GET " + b"/a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                                  (HEAD + "Content-Length: -5\r\n\r\n").encode(), (HEAD + "Transfer-Encoding: chunked\r\n\r\nzz\r\n").encode()])
def test_what_is_no_http_does_no_harm(server: Server, sent: bytes) -> None:
    answer = spoken(server, sent)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert httpx.get(f"http://127.0.0.1:{server.port}/healthz").status_code == 200

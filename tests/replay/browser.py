"""A headless Chromium, spoken to over its DevTools pipe: real layout, a real mouse, real pixels; no driver needed."""

import base64
import json
import os
import shutil
import struct
import subprocess
import zlib

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page in one browser process."""

    def __init__(self, profile, width=1200, height=900):
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4
        command = f'exec 3<&{to_browser} 4>&{from_browser} && exec "$0" "$@"'
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *arguments, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._buffer, self._session = 0, b"", None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.resize(width, height)
        self.requests = []
        self._ask("Network.enable")

    def _ask(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                part = os.read(self._read, 1 << 16)
                if not part:
                    raise RuntimeError("the browser went away")
                self._buffer += part
            raw, self._buffer = self._buffer.split(b"\0", 1)
            answer = json.loads(raw)
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def open(self, path):
        """Loads a file and waits until its script has run."""
        self._ask("Page.navigate", url=path.as_uri())
        loaded = "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        while self.run("location.protocol") != "file:":
            pass
        self.run(loaded)

    def run(self, script):
        """The value of a JavaScript expression."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def move_mouse(self, x, y):
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, height):
        """The upper part of the page as rows of (red, green, blue)."""
        clip = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": 1}
        return pixels(base64.b64decode(self._ask("Page.captureScreenshot", clip=clip)["data"]))

    def resize(self, width, height):
        size = {"width": width, "height": height}
        self._ask("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)

    def close(self):
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(20)


def pixels(png):
    """Rows of (red, green, blue) of a PNG with 8 bits a channel and no interlacing, as browsers write them."""
    at, data = 8, b""
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) in ((8, 2), (8, 6))
            size = 3 if colour == 2 else 4
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    return _unfiltered(zlib.decompress(data), width, height, size)


def _unfiltered(raw, width, height, size):
    stride, rows, above = width * size, [], bytearray(width * size)
    for y in range(height):
        start = y * (stride + 1)
        kind, row = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for x in range(stride):
            left = row[x - size] if x >= size else 0
            corner = above[x - size] if x >= size else 0
            row[x] = (row[x] + _predicted(kind, left, above[x], corner)) & 255
        rows.append([tuple(row[x : x + 3]) for x in range(0, stride, size)])
        above = row
    return rows


def _predicted(kind, left, above, corner):
    if kind == 4:
        guess = left + above - corner
        return min((left, above, corner), key=lambda value: abs(guess - value))
    return (0, left, above, (left + above) // 2)[kind]

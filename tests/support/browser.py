"""A real headless browser: windows that open our pages and record every complaint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MILLISECONDS = 60_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        yield browser
        browser.close()


class Windows:
    """Opens pages in separate windows that share nothing.

    ``complaints`` are the console's errors and warnings, uncaught errors and violations of a
    content security policy. A failed network request is none, because tests close servers.
    """

    def __init__(self, browser: Browser) -> None:
        self.complaints: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    def open(self, url: str, **options: Any) -> Page:
        """Open ``url``; ``options`` are those of Playwright's ``new_context``."""
        page = self.blank(**options)
        page.goto(url)
        return page

    def blank(self, **options: Any) -> Page:
        """An empty window."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        return page

    def close(self) -> None:
        """Close every window."""
        for context in self._contexts:
            context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

"""A real headless browser: its windows record every complaint; how tests read the status page in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from support.exporter_http import serving

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
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")


AUDIT = """(stale) => {
  document.body.dataset.stale = stale;
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = (top, share, below) => top.slice(0, 3).map((c, i) => c * share + below[i] * (1 - share));
  const root = channels(getComputedStyle(document.documentElement).backgroundColor);
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility({ visibilityProperty: true })) continue;
    let ground = null, share = 1;
    for (let up = node; up; up = up.parentElement) {
      const style = getComputedStyle(up), colour = channels(style.backgroundColor);
      if (ground === null && (colour[3] ?? 1) > 0) ground = colour;
      share *= Number(style.opacity);
    }
    ground = over(ground ?? root, share, root);
    const ink = over(channels(getComputedStyle(node).color), share, root);
    const [high, low] = [light(ink), light(ground)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${node.className || node.tagName} ${node.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
"""Texts whose contrast with their background is below 4.5 : 1 (WCAG 2.2, 1.4.3)."""


@contextmanager
def status_page(windows, published, *, query="#queries .query", **options):
    """A server of ``published`` and a window on its page, once ``query`` is visible."""
    served = ("token", "incidents", "timeline")
    access = {name: options.pop(name) for name in served if name in options}
    with serving(published, **access) as server:
        page = windows.open(server.url, **options)
        page.wait_for_selector(query)
        yield page, server


def texts(page: Page, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def states(page: Page) -> dict[str, str]:
    """The state of each query, in the order shown."""
    return dict(zip(texts(page, ".query h3"), texts(page, ".query .badge"), strict=True))


def row(page: Page, name: str):
    return page.locator(".query", has=page.get_by_role("heading", name=name, exact=True))


def notice(page: Page, words: str) -> None:
    """Wait until the notice contains ``words``."""
    page.get_by_role("alert").filter(has_text=words).wait_for()


def until_live(page: Page) -> None:
    page.wait_for_selector('body[data-connection="live"]')

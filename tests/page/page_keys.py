"""A viewer who has no mouse."""

from tools.browser import Browser


def focused(browser: Browser) -> str:
    """What is read where the focus is."""
    return str(
        browser.js("return document.activeElement.innerText || document.activeElement.ariaLabel || ''")
    )


def tab_to(browser: Browser, words: str, *, most: int = 60) -> None:
    """Press tab until the focus is on something that says so."""
    for _ in range(most):
        browser.press("TAB")
        if words in focused(browser):
            return
    raise AssertionError(f"{most} times tab did not lead to “{words}”, but to “{focused(browser)}”")

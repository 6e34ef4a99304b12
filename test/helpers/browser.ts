import { existsSync } from 'node:fs';
import { type Browser, chromium, type Page } from 'playwright-core';

const PROGRAM = '/usr/bin/chromium';

/** Why no test can use a browser here; undefined where one is. On CI a missing browser is a failure. */
export function missingBrowser(): string | undefined {
  if (existsSync(PROGRAM)) return undefined;
  const reason = `there is no ${PROGRAM}`;
  if (process.env['CI']) throw new Error(reason);
  return reason;
}

export async function launchBrowser(): Promise<Browser> {
  return await chromium.launch({
    executablePath: PROGRAM,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

/** Forbidden actions of an exported page. */
export interface Misdeeds {
  /** Dialogs, requests beyond the page itself, script errors and console messages, policy violations. */
  readonly seen: string[];
}

/** Opens a page and watches it from before its first byte. */
export async function watchedPage(
  browser: Browser,
  url: string,
  viewport = { width: 1280, height: 900 },
): Promise<{ readonly page: Page } & Misdeeds> {
  const page = await browser.newPage({ viewport });
  const seen: string[] = [];
  page.on('dialog', (dialog) => {
    seen.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    if (request.url().split('#')[0] !== url.split('#')[0]) seen.push(`request: ${request.url()}`);
  });
  page.on('pageerror', (error) => seen.push(`error: ${error.message}`));
  page.on('console', (message) => seen.push(`console: ${message.text()}`));
  page.on('popup', (popup) => seen.push(`popup: ${popup.url()}`));
  await page.exposeFunction('ryePwned', (what: string) => {
    seen.push(`script ran: ${what}`);
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      const tell = Reflect.get(window, 'ryePwned') as (what: string) => void;
      tell(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  await page.goto(url);
  return { page, seen };
}

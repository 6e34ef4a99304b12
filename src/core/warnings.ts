/** How a warning begins that says which guard or other power file is not obeyed. */
const IGNORED = 'ignored: ';

/** The warning about a file that is ignored; every place that reports it uses this text. */
export function ignoredWarning(error: {
  readonly message: string;
  readonly code: string;
  readonly hint?: string | undefined;
}): string {
  return `${IGNORED}${error.message} [${error.code}]. ${error.hint ?? ''}`.trim();
}

/** True for a warning that no option silences. */
export function isSecurityWarning(text: string): boolean {
  return text.startsWith(IGNORED);
}

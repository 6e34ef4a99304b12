import picocolors from 'picocolors';
import type { Colors } from './terminal-text.ts';

/** Returns the colors, or functions that change nothing. */
export function createColors(isOn: boolean): Colors {
  // the library's types do not tell that it keeps the characters
  return picocolors.createColors(isOn) as Colors;
}

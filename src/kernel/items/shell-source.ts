const NAME = String.raw`[A-Za-z_][\w:-]*`;
const OPENS = new RegExp(
  String.raw`^(?:function\s+${NAME}\s*(?:\(\s*\))?|${NAME}\s*\(\s*\))\s*\{\s*(?:#.*)?$`,
);
const ONE_LINE = new RegExp(
  String.raw`^(?:function\s+${NAME}\s*(?:\(\s*\))?|${NAME}\s*\(\s*\))\s*\{[^{}]*\}\s*(?:#.*)?$`,
);
const CLOSES = /^\}\s*(?:#.*)?$/;
/** A comment, an option, or a variable whose value runs nothing and cannot end the script. */
const QUIET =
  /^\s*(?:#.*|set\s+[-+][\w -]*|shopt\s+-[su][\w -]*|(?:export\s+|readonly\s+|declare\s+)?[A-Za-z_]\w*=(?:'[^']*'|"(?:[^"`$\\]|\$(?!\(|\{\w+:?\?))*"|(?:[^\s"'`$();|&<>\\]|\$\w)*)\s*(?:#.*)?)?$/;

/**
 * True if a shell script does something when it runs. Only a script of functions, options, variables and comments
 * does nothing. What is not understood counts as work, such as a function without a closing brace at the first column.
 */
export function shellActs(text: string): boolean {
  let isInFunction = false;
  for (const line of text.split('\n')) {
    if (isInFunction) {
      if (CLOSES.test(line)) isInFunction = false;
      else if (/^[^\s#]/.test(line)) return true;
    } else if (OPENS.test(line)) isInFunction = true;
    else if (!ONE_LINE.test(line) && !QUIET.test(line)) return true;
  }
  return isInFunction;
}

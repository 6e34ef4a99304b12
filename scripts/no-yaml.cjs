// Stands in the bundle for the YAML engine that gray-matter brings along and that rye never lets it use: nearly
// 400 KB, a second YAML dialect, and code that can be told to run JavaScript.
function refused() {
  throw new Error('gray-matter may not parse YAML by itself');
}

module.exports = { safeLoad: refused, safeDump: refused };

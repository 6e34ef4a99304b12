// Makes a greeting. An example of a tool: parameters come as JSON on stdin, the result goes as JSON to stdout.
const __version__ = '1.0.0';
const __tool_description__ = 'Make a greeting for a person or a thing.';
const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 10, risk: 'safe' };
const CONFIG_SCHEMA = {
  type: 'object',
  properties: { who: { type: 'string', description: 'Whom to greet.' } },
  required: ['who'],
  additionalProperties: false,
};

let text = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  text += chunk;
});
process.stdin.on('end', () => {
  const { who } = JSON.parse(text);
  process.stdout.write(`${JSON.stringify({ greeting: `Hello, ${who}!` })}\n`);
});

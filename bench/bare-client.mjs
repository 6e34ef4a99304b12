// The floor of a tool turn: a process that asks N times with a growing conversation and does nothing else.
// Arguments: the address of the server, and N.
import process from 'node:process';

const [url, turns] = process.argv.slice(2);
const messages = [{ role: 'user', content: `List the folder. Call ${turns} times.` }];
for (let turn = 0; turn <= Number(turns); turn += 1) {
  const response = await fetch(`${url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'bench', max_tokens: 1000, stream: true, messages }),
  });
  let json = '';
  for (const line of (await response.text()).split('\n')) {
    if (line.startsWith('data:')) json += JSON.parse(line.slice(5)).delta?.partial_json ?? '';
  }
  if (json === '') break;
  const id = `t${turn}`;
  messages.push(
    {
      role: 'assistant',
      content: [{ type: 'tool_use', id, name: 'rye_file_system_ls', input: JSON.parse(json) }],
    },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: 'data/' }] },
  );
}

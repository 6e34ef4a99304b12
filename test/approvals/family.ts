import { directive } from '../attacks/lab.ts';
import { reply, toolUse, type WireBody, type WireTurn } from '../helpers/wire-server.ts';
import { type House, house } from './house.ts';

/** The answers of a directive's model, in order; afterwards it reports that it is done. */
export type Script = Readonly<Record<string, readonly WireTurn[]>>;

const RISK = '<acknowledge risk="elevated">Tests.</acknowledge>';
const MAY_START = `<execute><directive>*</directive></execute><execute><tool>rye/agent/*</tool></execute>`;
const MAY_RUN = `<execute><tool>rye/bash</tool></execute>`;
const ASKS = `<execute><tool ask="true">rye/bash</tool></execute>`;

/**
 * Opens a house with one directive for each entry of the script. Names that begin with `ask` may run `rye/bash` only after a
 * person agrees; all others freely.
 */
export async function family(script: Script): Promise<House> {
  const here = await house();
  const left = new Map(Object.entries(script).map(([name, turns]) => [name, [...turns]]));
  for (const [place, name] of [...left.keys()].entries()) {
    const bash = name.startsWith('ask') ? ASKS : MAY_RUN;
    here.signed(
      `directives/${name}.md`,
      directive(name, {
        permissions: MAY_START + bash + RISK,
        // each may start all that come after it
        limits: `turns="12" spend="${(2 / 4 ** place).toFixed(4)}"`,
        body: `I am ${name}.`,
      }),
    );
  }
  await here.model(({ body }) => {
    here.bodies.push(body);
    return left.get(speaker(body))?.shift() ?? reply(`${speaker(body)} is done`);
  });
  return here;
}

/** The directive whose thread sent a request. */
export function speaker({ messages }: WireBody): string {
  return /I am (\S+)\./.exec(JSON.stringify(messages[0]))?.[1] ?? '';
}

/** A call that runs a directive and waits for its end. */
export function starts(id: string, more: object = {}): ReturnType<typeof toolUse> {
  return toolUse('rye_execute', { item_type: 'directive', item_id: id, ...more });
}

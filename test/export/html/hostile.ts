import type { EventDraft, LogEvent, UnknownEvent } from '../../../src/kernel/core/events.ts';
import type { ExportSource } from '../../../src/kernel/export/source.ts';
import { place } from '../../log/support.ts';
import { sourceOf } from '../support.ts';
import { answers, asks, calls, gives, reply, thinks } from './story.ts';

/** Ways into a page, each would call `ryePwned` if it were taken as markup, script or style. */
const ATTACKS: readonly string[] = [
  '<script>ryePwned("script")</script>',
  '</script><script>ryePwned("closed script")</script>',
  '</style><script>ryePwned("closed style")</script>',
  '</title><script>ryePwned("closed title")</script>',
  '<!--<script>ryePwned("comment")</script>-->',
  '<img src=x onerror=ryePwned("onerror")>',
  '"><img src=x onerror=ryePwned("attribute")>',
  "' onmouseover='ryePwned(1)' autofocus onfocus='ryePwned(2)' x='",
  '<svg onload=ryePwned("svg")><style>@import "http://127.0.0.1:9/css"</style></svg>',
  '<iframe src="javascript:ryePwned(3)"></iframe><base href="http://127.0.0.1:9/">',
  '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/">',
  '[click](javascript:ryePwned("link"))',
  '[click](JaVaScRiPt:ryePwned("link"))',
  '[click](data:text/html;base64,PHNjcmlwdD5yeWVQd25lZCgxKTwvc2NyaXB0Pg==)',
  '[click](vbscript:ryePwned(4) "a title")',
  '<javascript:ryePwned(5)>',
  '![image](http://127.0.0.1:9/pixel.png)',
  '![image](data:image/svg+xml;base64,PHN2Zy8+ "onerror=ryePwned(6)")',
  '[ref]: javascript:ryePwned(7)\n[ref]',
  '```"><script>ryePwned("fence")</script>\nx\n```',
  '```html\n<script>ryePwned("code")</script>\n```',
  '```js\nconst a = "</code></pre><script>ryePwned(8)</script>";\n```',
  '| a |\n| :-: |\n| <script>ryePwned(9)</script> |',
  '<style>*{background:url(http://127.0.0.1:9/x)}</style>',
  '{{constructor.constructor("ryePwned(10)")()}} ${ryePwned(11)} $& $` $\'',
  '\u0000<scr\u0000ipt>ryePwned(12)</scr\u0000ipt>\u001B[31m\u009B\uD800',
  '\u202E<script>ryePwned(13)</script>',
  '__proto__',
];

/** A thread that has every attack in every place where a log or its metadata holds a text. */
export function hostileSource(): ExportSource {
  const drafts = ATTACKS.flatMap((attack, index): readonly EventDraft[] => [
    asks(attack),
    answers(
      index,
      thinks(attack),
      reply(attack),
      calls(attack, attack, { [attack]: attack, path: `a.${attack}`, command: attack }),
    ),
    ...gives(attack, attack, attack, index % 2 === 0 ? 'ok' : 'error'),
    pictures(attack),
    { event_type: 'run_started', payload: runOf(attack) },
    { event_type: 'title', payload: { title: attack } },
    { event_type: 'model_change', payload: { provider: attack, model: attack } },
    { event_type: 'thinking_change', payload: { level: attack } },
    { event_type: 'custom', payload: { custom_type: attack, data: { [attack]: attack } } },
    {
      event_type: 'custom_message',
      payload: { custom_type: attack, content: attack, display: true },
    },
    { event_type: 'branch_summary', payload: { from_id: attack, summary: attack } },
    { event_type: 'system_prompt', payload: { text: attack, tools: [{ name: attack }] } },
    {
      event_type: 'context_injected',
      payload: { position: 'before', blocks: [{ id: attack, source: attack, content: attack }] },
    },
    {
      event_type: 'rule_injection',
      payload: { rules: [{ name: attack, sha256: attack }], turn: 1 },
    },
    { event_type: 'note', payload: { text: attack } },
    { event_type: 'child_thread_started', payload: { child_thread_id: attack, directive: attack } },
    {
      event_type: 'hook_fired',
      payload: {
        id: attack,
        layer: 1,
        event: attack,
        matched: true,
        duration_ms: 1,
        outcome: attack,
        error: attack,
      },
    },
    {
      event_type: 'compaction',
      payload: { summary: attack, first_kept_entry_id: null, tokens_before: 1 },
    },
  ]);
  const placed = place(drafts);
  const labels = place(
    ATTACKS.map((label, index) => labelled(`e${index + 1}`, label)),
    'label',
  );
  const edit: EventDraft = {
    event_type: 'context_edit',
    payload: {
      target_id: 'e3',
      action: 'replace',
      content: ATTACKS[0] ?? '',
      reason: ATTACKS[5] ?? '',
    },
  };
  const events = [...placed, ...labels, ...place([edit], 'edit')].map((event, index) => ({
    ...event,
    seq: index + 1,
    parent_id: null,
  }));
  const source = sourceOf(chained([...events, ...strangers(events.length)]));
  return {
    ...source,
    header: { ...source.header, thread_id: all(), directive: all() },
    facts: {
      ...source.facts,
      description: all(),
      finishedAt: all(),
      document: {
        ...source.facts.document,
        thread_id: all(),
        directive: all(),
        model: all(),
        status: all(),
        result: all(),
        outputs: { [all()]: all() },
        error: { code: 'internal', message: all() },
      },
    },
    itemIntegrity: all(),
    checks: [{ name: all(), ok: false, detail: all() }],
    problems: [{ kind: 'malformed', offset: 3, message: all() }],
    pageOf: (id) => `${id}.html`,
    exportedAt: all(),
    version: all(),
  };
}

/** Images that are none, in types that a page must not show. */
function pictures(attack: string): EventDraft {
  const svg = Buffer.from('<svg onload="ryePwned(14)"/>').toString('base64');
  const content = [
    { type: 'image', media_type: 'image/svg+xml', data: svg },
    { type: 'image', media_type: 'image/png', data: svg },
    { type: 'image', media_type: attack, data: svg },
    { type: 'image', media_type: 'image/png', data: `iVBORw0KGgo${attack}` },
  ] as const;
  return { event_type: 'message', payload: { message: { role: 'user', content } } };
}

function runOf(attack: string): Extract<EventDraft, { event_type: 'run_started' }>['payload'] {
  const payload: unknown = { run: attack, reason: attack, from_entry: attack, model: attack };
  return payload as ReturnType<typeof runOf>;
}

function labelled(target_id: string, label: string): EventDraft {
  return { event_type: 'label', payload: { target_id, label } };
}

function all(): string {
  return ATTACKS.join(' ');
}

/** Entries whose ids, times and types are attacks, and payloads that do not match their type. */
function strangers(from: number): readonly UnknownEvent[] {
  const broken = {
    message: { role: 'tool_result', call_id: 'x', content: [], name: 7, outcome: {} },
    blocks: null,
  };
  return ATTACKS.flatMap((attack, index) =>
    [attack, 'message', 'context_injected'].map((event_type, part) => ({
      seq: from + index * 3 + part + 1,
      timestamp: attack,
      thread_id: attack,
      event_type,
      payload: { ...broken, [attack]: attack } as UnknownEvent['payload'],
      id: `${attack} ${part}`,
      parent_id: null,
    })),
  );
}

/** Hangs every entry on the one before. */
function chained(
  events: readonly (LogEvent | UnknownEvent)[],
): readonly (LogEvent | UnknownEvent)[] {
  let leaf: string | null = null;
  return events.map((event) => {
    if (event.id === undefined) return event;
    const parent_id = leaf;
    leaf = event.id;
    return { ...event, parent_id };
  });
}

import { capabilityProblem } from '../../src/kernel/core/capability.ts';
import { isJsonObject, parseJson } from '../../src/kernel/core/json.ts';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { OPAQUE_ELEMENTS } from '../../src/kernel/items/directive-ast.ts';
import { splitFrontmatter } from '../../src/kernel/items/metadata.ts';
import { parseXml } from '../../src/kernel/items/xml.ts';
import { covers, includes, meet, parseCapability } from '../../src/kernel/policy/capability.ts';
import { evaluate, parseCondition } from '../../src/kernel/policy/condition.ts';
import { canonicalJson } from '../../src/kernel/trust/canonical-json.ts';
import { generateKeyPair, readPrivateKey } from '../../src/kernel/trust/keys.ts';
import {
  checkDocument,
  checkText,
  signDocument,
  signText,
} from '../../src/kernel/trust/signature.ts';
import { splitText } from '../../src/kernel/trust/signature-line.ts';
import { directive } from '../attacks/lab.ts';

/** A thing to throw texts at: it returns why what it accepted is wrong, undefined when all is well. */
export interface FuzzTarget {
  readonly name: string;
  readonly seeds: readonly string[];
  /** May throw a RyeError: that is a refusal. Anything else that it throws is a crash. */
  readonly accept: (text: string) => string | undefined;
}

const DIRECTIVES = [
  directive('job', { permissions: '<execute><tool>rye/bash</tool></execute><fetch>*</fetch>' }),
  directive('job', {
    extends: 'base',
    metadata: '<hooks><hook id="h" event="error"><action>retry</action></hook></hooks>',
    children:
      '<inputs><input name="a" type="integer" default="1">A</input></inputs><process><step name="s"><execute item_type="tool" item_id="t"><param name="p">{input:a}</param></execute></step></process>',
  }),
];

const FRONTMATTER = [
  '---\ntitle: A\ntags: [a, b]\n---\nBody\n',
  '---\na: &x {b: 1}\nc: *x\n---\n',
  '---js\n1\n---\n',
];

const CONDITIONS = [
  '{"all": [{"path": "a.b", "op": "gt", "value": 3}, {"not": {"path": "c", "op": "exists"}}]}',
  '{"any": [{"path": "text", "op": "regex", "value": "(a+)+$"}, {"path": "x.0", "op": "in", "value": [1, "a"]}]}',
];

const PATTERNS = ['rye.execute.tool.rye.bash', 'rye.*', 'rye.fetch.knowledge.a.*.c', 'rye.sign.*'];

const key = readPrivateKey(generateKeyPair().privatePem, 'fuzz');
const keys = { find: () => ({ status: 'trusted', key }) as const };
const subject = { kind: 'directive', id: 'demo/job' };
const CONTENT = 'line one\nline two: {"a": 1}\n';
const SIGNED = (['html', 'hash', 'yaml', 'slash'] as const).map((style) => ({
  style,
  text: signText({ text: CONTENT, style, subject, key, now: 0 }),
}));
const DOCUMENT = {
  thread_id: 'one',
  limits: { turns: 5, spend: 0.25 },
  capabilities: ['rye.fetch.*'],
};
const THREAD_JSON = JSON.stringify(signDocument(DOCUMENT, { subject, key, now: 0 }), null, 2);

export const TARGETS: readonly FuzzTarget[] = [
  {
    name: 'directives',
    seeds: DIRECTIVES,
    accept(text) {
      const parsed = parseDirective(text, 'fuzz.md');
      const wrong = parsed.permissions.capabilities.find(
        (one) => capabilityProblem(one) !== undefined,
      );
      if (wrong !== undefined) return `it grants ${JSON.stringify(wrong)}`;
      const limit = parsed.rawLimits.find(
        ({ value }) => typeof value !== 'number' || !Number.isFinite(value) || value < 0,
      );
      return limit && `its limit ${limit.name} is ${String(limit.value)}`;
    },
  },
  {
    name: 'XML',
    seeds: DIRECTIVES.map((text) =>
      text.slice(text.indexOf('<directive'), text.indexOf('\n```\n', 20)),
    ),
    accept(text) {
      const root = parseXml({ path: 'fuzz.xml', text, line: 1, column: 1 }, OPAQUE_ELEMENTS);
      if (root.attributes.has('__proto__')) return 'it took __proto__ for an attribute';
      return /<!(?:DOCTYPE|ENTITY)/i.test(text.slice(0, text.indexOf(root.name)))
        ? 'it took a DTD'
        : undefined;
    },
  },
  {
    name: 'frontmatter',
    seeds: FRONTMATTER,
    accept(text) {
      const found = splitFrontmatter(text, 'fuzz.md', 'knowledge_malformed');
      if (found && !text.replace(/^<!--.*\n/, '').startsWith('---'))
        return 'it found some without ---';
      const value = found?.mapping.value;
      return value && Object.getPrototypeOf(value) !== Object.prototype
        ? 'its prototype changed'
        : undefined;
    },
  },
  {
    name: 'conditions',
    seeds: CONDITIONS,
    accept(text) {
      const raw = parseJson(text);
      if (raw === undefined) return undefined;
      const condition = parseCondition(raw);
      const context = { a: { b: 4 }, text: `${'a'.repeat(5000)}!`, x: [1, 2], limits: {} };
      const answer: unknown = evaluate(condition, context);
      if (typeof answer !== 'boolean') return `it is ${String(answer)}`;
      return evaluate(condition, context) === answer ? undefined : 'it changes its mind';
    },
  },
  {
    name: 'permission patterns',
    seeds: PATTERNS,
    accept(text) {
      const pattern = parseCapability(text);
      const other = 'rye.execute.tool.rye.*';
      for (const common of meet(pattern, other)) {
        if (!includes(pattern, common) || !includes(other, common))
          return `its meet ${common} is wider`;
      }
      if (
        pattern.startsWith('rye.fetch.') &&
        covers([pattern], { verb: 'execute', item_type: 'tool', item_id: 'a' })
      )
        return 'a grant to fetch executes';
      return includes(pattern, pattern) ? undefined : 'it does not include itself';
    },
  },
  {
    name: 'signature lines',
    seeds: SIGNED.map(({ text }) => text),
    accept(text) {
      for (const { style } of SIGNED) {
        const verdict = checkText({ text, style, keys, subject });
        if (!verdict.ok) continue;
        const { signedAt } = { signedAt: undefined, ...verdict };
        if (signedAt !== '1970-01-01T00:00:00Z') return `${style} accepts the time ${signedAt}`;
        const { content } = splitText(text, style);
        if (content.replaceAll('\r\n', '\n') !== CONTENT) return `${style} accepts another content`;
      }
      return undefined;
    },
  },
  {
    name: 'thread.json',
    seeds: [THREAD_JSON],
    accept(text) {
      const parsed = parseJson(text);
      if (!checkDocument(parsed, { keys, subject }).ok || !isJsonObject(parsed)) return undefined;
      const { _signature: _dropped, ...content } = parsed;
      return canonicalJson(content) === canonicalJson(DOCUMENT)
        ? undefined
        : 'another document verifies';
    },
  },
];

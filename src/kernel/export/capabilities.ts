import type { ThreadPlan } from '../core/plan.ts';
import { fence, inlineCode } from './markdown.ts';

/** A tool definition as it was sent to the model. */
export interface OfferedDefinition {
  readonly name: string;
  readonly description: string;
  readonly input_schema: unknown;
}

/** Renders the thread's permissions and offered tools; signed and written once, at the start. */
export function renderCapabilities(
  plan: ThreadPlan,
  definitions: readonly OfferedDefinition[],
): string {
  const lines = [
    '# Capabilities',
    '',
    `Directive ${inlineCode(plan.directive.id)} ${plan.directive.version}, model ${inlineCode(`${plan.model.provider}/${plan.model.id}`)}.`,
    '',
    '## Granted',
    '',
    ...listOr(
      plan.capabilities.map((capability) => `- \`${capability}\` (${riskOf(plan, capability)})`),
      'Nothing.',
    ),
    '',
    '## Acknowledged risks',
    '',
    ...listOr(
      plan.acknowledged.map(
        ({ risk, tool, reason, origin }) =>
          `- ${risk}${tool === undefined ? '' : ` of ${inlineCode(tool)}`}: ${inlineCode(reason)} (${origin})`,
      ),
      'None.',
    ),
    '',
    '## Tools',
    '',
    ...listOr(
      plan.tools.map(
        ({ id, name, risk, preloaded }) =>
          `- \`${name}\`: ${id} (${risk}${preloaded ? '' : ', deferred'})`,
      ),
      'None.',
    ),
    '',
    '## Tool definitions',
    '',
    fence(JSON.stringify(definitions, null, 2), 'json'),
    '',
  ];
  return lines.join('\n');
}

function riskOf({ risks }: ThreadPlan, capability: string): string {
  return risks.find((assessed) => assessed.capability === capability)?.risk ?? 'unknown';
}

function listOr(lines: readonly string[], none: string): readonly string[] {
  return lines.length === 0 ? [none] : lines;
}

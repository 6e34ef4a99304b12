import { isRecord } from '../../core/json.ts';
import type { Usage } from '../../core/usage.ts';

/**
 * The counts of a chunk's `usage`; undefined where it has none. `prompt_tokens` includes what was read from and written
 * to a cache, which rye counts apart. DeepSeek names cache reads `prompt_cache_hit_tokens`.
 */
export function usageOf(raw: unknown): Usage | undefined {
  if (!isRecord(raw)) return undefined;
  const details = isRecord(raw['prompt_tokens_details']) ? raw['prompt_tokens_details'] : {};
  const prompt = count(raw['prompt_tokens']);
  const read = Math.min(prompt, count(details['cached_tokens'] ?? raw['prompt_cache_hit_tokens']));
  const written = Math.min(prompt - read, count(details['cache_write_tokens']));
  return {
    input_tokens: prompt - read - written,
    output_tokens: count(raw['completion_tokens']),
    cache_read_tokens: read,
    cache_write_tokens: written,
  };
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

import type { Cost } from './usage.ts';
import { totalTokens } from './usage.ts';

/** USD with the digits that matter: four below a dollar, two above. */
export function formatUsd(usd: number): string {
  if (usd !== 0 && usd < 0.0001) return `$${usd.toFixed(6)}`;
  return `$${usd.toFixed(usd !== 0 && usd < 1 ? 4 : 2)}`;
}

/** Seconds as `850ms`, `4.2s` or `3m 05s`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 60) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, '0')}s`;
}

/** Token counts as `950`, `12.3k` or `1.2M`. */
export function formatTokens(tokens: number): string {
  if (tokens < 1000) return String(tokens);
  if (tokens < 1_000_000) return `${(tokens / 1000).toFixed(1)}k`;
  return `${(tokens / 1_000_000).toFixed(1)}M`;
}

/** `2 turns, 12.3k tokens, $0.0310, 4.2s`. */
export function formatCost(cost: Cost): string {
  return [
    `${cost.turns} turn${cost.turns === 1 ? '' : 's'}`,
    `${formatTokens(totalTokens(cost))} tokens`,
    formatUsd(cost.spend),
    formatSeconds(cost.elapsed_seconds),
  ].join(', ');
}

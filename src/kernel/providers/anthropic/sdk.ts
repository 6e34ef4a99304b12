// The vendor's client in one module, so that the adapter loads it with one lazy import and a bundler can drop
// what is not named here.
export { BaseAnthropic } from '@anthropic-ai/sdk/client';

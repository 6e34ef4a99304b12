// Suites of tests for adapters: a store or a provider that passes them works with rye. They need vitest.
export {
  describeProvider,
  type Opened,
  type ProviderSituations,
  type Scenario,
} from './provider.ts';
export { describeStore, type StoreSituations } from './store.ts';

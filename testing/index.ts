// Parts for tests of programs that use rye.

export {
  type MockAnswer,
  type MockCall,
  type MockModel,
  type MockTurn,
  mockModel,
} from './mock-model.ts';

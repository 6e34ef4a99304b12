/** The parts of `yaml` that configuration needs, as one module that is loaded when the first file is read. */
export { isAlias, isMap, isScalar, isSeq, LineCounter, parse, parseDocument } from 'yaml';

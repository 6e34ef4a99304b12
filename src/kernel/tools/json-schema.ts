/** The JSON Schema compiler and the regular expressions for its patterns: loaded by the first validation. */
export { Ajv2020 } from 'ajv/dist/2020.js';
export { RE2JS } from 're2js';

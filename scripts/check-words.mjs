// Holds the house's wording: plain technical English, one word for one thing, American spelling. Checks the comments, strings
// and names of src, the documentation, the shipped items, and the titles and comments of tests. Prints each finding as
// `file:line: "word": what to write instead`. Folders can be given as arguments: `npm run check:words -- src/kernel/log`.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

/** Words to avoid, each with its replacement. */
const WORDS = [
  ['stands?|stood', 'is, appears, is written; represents'],
  ['nobody|somebody|whoever', 'name the actor: no process, another user, the caller'],
  ['whatever', 'any, every'],
  ['anew|afresh', 'again'],
  ['go(?:es)? on|went on|going on|gone on', 'continue, resume'],
  ['takes? in|taken in|took in', 'deliver, include, receive'],
  ['bec(?:a|o)mes? of', 'status, outcome'],
  ['what is left', 'the rest, the remaining …'],
  ['of its own|of their own', 'its own …, separate'],
  ['parted', 'split'],
  ['pass(?:ed|es)? over', 'skip, ignore'],
  ['left out|leaves? out', 'skip, omit'],
  ['lets? go of', 'release'],
  ['sees? to it', 'ensures, name the action'],
  ['behind', 'after'],
  ['says?|said', 'state, report, return, print'],
  ['brought up to date', 'updated'],
  ['no going back', 'irreversible'],
  ['gives? back|gave back', 'returns'],
  ['in front of', 'before'],
  ['made again', 'retried'],
  ['begins? with its path', 'fork'],
  ['lost its process', 'crashed'],
  ['knows? nothing', 'has no information'],
  ['of (?:which|whom|what)', 'whose, or split the sentence'],
  ['ends? (?:\\w+ ){0,3}in order', 'finalize'],
  ['the ones? that|those of', 'repeat the noun: the run that, the files of'],
  [
    '(?:is|are) about(?! (?:to|half|twice|\\d))',
    'applies to, names, describes; approximately before a number',
  ],
  ['c(?:o|a)mes? about', 'occur, is created'],
  ['go(?:es)? ahead|went ahead', 'continue, start'],
  ['that there (?:is|are)', 'exists, or name the thing: no known tool'],
  [
    'behaviours?|colours?|neighbours?|favour\\w*|honour\\w*|catalogues?|cancellable',
    'American spelling',
  ],
  [
    '(?:summar|serial|deserial|normal|recogn|organ|initial|final|author|optim|priorit|minim|maxim)is(?:e[ds]?|ing|ation)',
    'American spelling: -ize',
  ],
];

/** Phrases in which a word is right. */
const ALLOWED = [
  /\bbehind (?:a|the) (?:proxy|proxies|scenes)\b/gi,
  // tool descriptions, which golden requests hold
  /\bsay why in error_detail\b|\bresume_thread: what to say\b|\bStart it and go on\b/g,
  // shipped items, whose hashes are signed
  /\bthe one that (?:your server has|the model was loaded with)|\bText that the question is about\b/g,
  /\bthose of (?:the provider bedrock|the Messages API|chat completions)\b/g,
  // texts that make up the context of every log, so that old logs keep producing the same one
  /happened before this point was summarised:|\(left out of the context\)|say why in "error_detail"/g,
];

/** Doc comments begin with a verb or a noun, not with a question word. */
const OPENING = /^\s*\/\*\* (?:What|Whether|How|Who|Whom|Where|Which|Of|That|Whatever|Whoever)\b/;

const EXPRESSION = new RegExp(`\\b(?:${WORDS.map(([word]) => `(${word})`).join('|')})\\b`, 'gi');
const ROOTS = [
  'src',
  'testing',
  'docs',
  '.ai',
  'scripts',
  'startup',
  'bench',
  'test',
  'README.md',
  'AGENTS.md',
];
const CHECKED = /\.(?:ts|mjs|md|yaml|py|sh)$/;
const SKIPPED = /(?:^|[\\/])(?:node_modules|fixtures|golden|check-words\.mjs)(?:$|[\\/])/;
const IS_TEST = /^test[\\/]/;
const TITLE_OR_COMMENT = /\b(?:it|test|describe)(?:\.\w+)*\(|^\s*(?:\/\/|\/?\*)/;

function filesOf(entry) {
  if (SKIPPED.test(entry)) return [];
  if (statSync(entry).isFile()) return CHECKED.test(entry) ? [entry] : [];
  return readdirSync(entry).flatMap((name) => filesOf(path.join(entry, name)));
}

/** Returns the findings of one line: the word and its replacement. */
function findings(line) {
  const text = ALLOWED.reduce((rest, phrase) => rest.replaceAll(phrase, ''), line);
  const words = [...text.matchAll(EXPRESSION)].map(([word, ...groups]) => {
    const [, replacement] = WORDS[groups.findIndex((group) => group !== undefined)];
    return [word, replacement];
  });
  const opening = OPENING.exec(line);
  return opening ? [...words, [opening[0].trim(), 'begin with a verb: Returns, True if']] : words;
}

const roots = process.argv.slice(2);
let count = 0;
for (const file of (roots.length === 0 ? ROOTS : roots).flatMap(filesOf)) {
  const isTest = IS_TEST.test(file);
  for (const [at, line] of readFileSync(file, 'utf8').split('\n').entries()) {
    if (isTest && !TITLE_OR_COMMENT.test(line)) continue;
    for (const [word, replacement] of findings(line)) {
      count += 1;
      process.stdout.write(`${file}:${at + 1}: "${word}": ${replacement}\n`);
    }
  }
}
process.stdout.write(`words: ${count} to replace\n`);
process.exitCode = count === 0 ? 0 : 1;

/** Why a text is refused before or instead of being parsed. */
export class JsonTextError extends Error {
  override readonly name = "JsonTextError";
}

/** The key `__proto__`, also with escapes. Code that copies an object with it may change the object's prototype. */
const prototypeKey =
  /"(?:_|\\u005f){2}(?:p|\\u0070)(?:r|\\u0072)(?:o|\\u006f)(?:t|\\u0074)(?:o|\\u006f)(?:_|\\u005f){2}"\s*:/i;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses JSON from a stranger.
 *
 * @throws JsonTextError for bytes that are no UTF-8, text that is no JSON or is nested too deep, and a key `__proto__`.
 */
export function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw new JsonTextError("it is not UTF-8");
  }
  if (isDeeperThan(text, maxDepth)) throw new JsonTextError(`it is nested deeper than ${maxDepth} levels`);
  if (prototypeKey.test(text)) throw new JsonTextError('it has a key "__proto__"');
  try {
    return JSON.parse(text);
  } catch {
    // The parser's message quotes the text.
    throw new JsonTextError("it does not parse");
  }
}

const quote = 0x22;
const backslash = 0x5c;
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

function isDeeperThan(text: string, maxDepth: number): boolean {
  let depth = 0;
  let isInText = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (isInText) {
      if (code === backslash) at++;
      else if (code === quote) isInText = false;
    } else if (code === quote) isInText = true;
    else if (code === closeList || code === closeObject) depth--;
    else if ((code === openList || code === openObject) && ++depth > maxDepth) return true;
  }
  return false;
}

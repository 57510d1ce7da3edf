/** Bytes as standard base64, with padding. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  // Beyond some hundred thousand arguments a call fails.
  for (let at = 0; at < bytes.length; at += 8192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** The bytes of base64 of both alphabets, with or without padding; undefined for any other text. */
export function fromBase64(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(text)) return undefined;
  const digits = text.replace(/=+$/, "").replaceAll("-", "+").replaceAll("_", "/");
  // One digit alone holds no byte.
  if (digits.length % 4 === 1) return undefined;
  return Uint8Array.from(atob(digits), (character) => character.charCodeAt(0));
}

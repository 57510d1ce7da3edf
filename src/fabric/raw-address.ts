/** The numeric host in a raw tcp address (a `sockaddr_in` or `sockaddr_in6` of Linux), or "" for anything else. */
export function hostOfAddress(address: Uint8Array): string {
  if (address.byteLength < 16) return "";
  const view = new DataView(address.buffer, address.byteOffset, address.byteLength);
  const family = view.getUint16(0, true);
  if (family === inet) return address.subarray(4, 8).join(".");
  if (family !== inet6 || address.byteLength < 24) return "";
  const groups: string[] = [];
  for (let at = 8; at < 24; at += 2) groups.push(view.getUint16(at).toString(16));
  return groups.join(":");
}

const inet = 2;
const inet6 = 10;

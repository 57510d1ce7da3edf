/** How many bytes the views cover together: what several of them show is counted once. */
export function coveredBytes(views: Iterable<Uint8Array>): number {
  const byBuffer = new Map<ArrayBufferLike, Uint8Array[]>();
  for (const view of views) {
    const others = byBuffer.get(view.buffer);
    if (others === undefined) byBuffer.set(view.buffer, [view]);
    else others.push(view);
  }
  let bytes = 0;
  for (const inBuffer of byBuffer.values()) {
    inBuffer.sort((one, other) => one.byteOffset - other.byteOffset);
    let end = 0;
    for (const { byteOffset, byteLength } of inBuffer) {
      const viewEnd = byteOffset + byteLength;
      bytes += Math.max(0, viewEnd - Math.max(end, byteOffset));
      end = Math.max(end, viewEnd);
    }
  }
  return bytes;
}

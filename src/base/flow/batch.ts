/**
 * Items of streams and one-way requests are pipelined by their window, so neither side waits for a batch of them: it may
 * be so many times as long.
 */
const itemBatches = 4;
/**
 * Bytes for each frame of a batch. shm has batches of 8, and longer messages than 4,096 bytes take a slower way there
 * (`SMR_INJECT_SIZE`).
 */
const itemBatchFrameBytes = 512;

/**
 * Whether a message of so many frames and bytes leaves without waiting for more. `itemBytes`: of its last frame where
 * that is an item of a stream or a one-way request, otherwise 0.
 */
export function isBatch(batchFrames: number, frames: number, bytes: number, itemBytes: number): boolean {
  if (frames < batchFrames) return false;
  if (itemBytes === 0) return true;
  return frames >= itemBatches * batchFrames || bytes + itemBytes > itemBatchFrameBytes * batchFrames;
}

/**
 * The addon's functions for files that hold disks. Each takes a descriptor, and returns EINVAL for wrong arguments, EMFILE
 * where the process has no descriptor left for the work.
 */
export interface FileAddon {
  /**
   * Makes a range of a file or of a block device read as zeroes, on a thread of libuv's pool (fallocate(2)). With `frees`
   * the range gives up its space, otherwise it keeps it. The length of the file stays. 0 or an error number: EOPNOTSUPP
   * where the file system cannot do so.
   */
  zeroFile(file: number, offset: number, bytes: number, frees: boolean): Promise<number> | number;
  /**
   * Where the data of a range are, on a thread of libuv's pool: begin and end of each part in turn, at most `most` numbers
   * (lseek(2), SEEK_DATA). The position of the descriptor changes. An error number where the file cannot say.
   */
  findData(
    file: number,
    offset: number,
    bytes: number,
    most: number,
  ): Promise<readonly number[] | number> | number;
  /**
   * Locks the whole file until the descriptor is closed (fcntl(2), F_OFD_SETLK), for reading with `shares`, else for
   * writing. It does not wait. 0 or an error number: EAGAIN or EACCES where a lock of another open file is in the way.
   */
  lockFile(file: number, shares: boolean): number;
  /** The size of a block device in bytes, or a negative error number. */
  deviceBytes(file: number): number;
}

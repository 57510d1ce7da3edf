// The entry `cinnabar-http/client/upload`: plain bytes to a method, for browsers. It needs no module of Node.

export {
  type HttpUpload,
  type HttpUploadOptions,
  httpUpload,
  type UploadBody,
  type UploadMethod,
} from "./client/upload.ts";

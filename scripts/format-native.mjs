// The C++ half of `npm run format`.
import { live } from "./setup/command.mjs";
import { findClangFormat } from "./setup/system-packages.mjs";
import { nativeSourceFiles } from "./test/native-tests.mjs";

const clangFormat = await findClangFormat();
const files = nativeSourceFiles();
if (clangFormat === undefined) {
  console.error("clang-format 14 is not on this machine; the C++ sources stay as they are");
  process.exitCode = 1;
} else if (files.length > 0 && (await live(clangFormat, ["-i", ...files])) !== "0") {
  process.exitCode = 1;
}

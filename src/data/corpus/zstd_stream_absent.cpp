// unzstd() of byte_stream.h in a build without libzstd.
#include "base/error.h"
#include "data/corpus/byte_stream.h"

namespace lockstep {

std::unique_ptr<ByteStream> unzstd(std::unique_ptr<ByteStream>, std::string name) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: zstd needs libzstd, and this build is without it", name),
                  "install libzstd-dev and build again, or unpack the file");
}

}  // namespace lockstep

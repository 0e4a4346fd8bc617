// gunzipped() of byte_stream.h in a build without zlib.
#include "base/error.h"
#include "data/corpus/byte_stream.h"

namespace lockstep {

std::unique_ptr<ByteStream> gunzipped(std::unique_ptr<ByteStream>, std::string name) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: gzip needs zlib, and this build is without it", name),
                  "install zlib1g-dev and build again, or unpack the file");
}

}  // namespace lockstep

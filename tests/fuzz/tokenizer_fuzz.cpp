// Any text at all is either a tokenizer.json that encodes and decodes, or a UserError of one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  try {
    const Tokenizer tokenizer({reinterpret_cast<const char*>(data), size}, "fuzz");
    TokenizerScratch scratch;
    for (const std::string text : {"", "hello  <s> world'S 123\n\n", "a\xC3\xA9\xF0\x9F\x98\x80\xFF▁ ▁b"}) {
      std::vector<std::int32_t> ids;
      tokenizer.encode(text, Specials::add, ids, scratch);
      for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary());
      std::vector<std::int32_t> again;
      tokenizer.encode(text, Specials::add, again, scratch);  // now from the cache
      require(ids == again);
      (void)tokenizer.decode(ids, Specials::add);
      (void)tokenizer.decode(ids, Specials::skip);
    }
  } catch (const UserError& error) {
    const std::string text = error.what();
    require(!text.empty() && text.find('\n') == std::string::npos && text.size() < 2000);
  }
  return 0;
}

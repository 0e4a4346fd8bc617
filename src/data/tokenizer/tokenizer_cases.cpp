#include "data/tokenizer/tokenizer_cases.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostCasesBytes = 256 << 20;

using TokenIds = std::vector<std::int32_t>;

TokenIds read_ids(const TokenizerNode& node, const char* key) {
  TokenIds ids;
  for (const TokenizerNode& item : node.items(key)) {
    if (!item.value().is_number_unsigned() || item.value().get<std::uint64_t>() >= std::uint64_t{1} << 31)
      item.refuse("is no token id", "make the cases again");
    ids.push_back(item.value().get<std::int32_t>());
  }
  return ids;
}

std::string describe(const TokenIds& is, const TokenIds& expected) {
  constexpr std::ptrdiff_t kShown = 8;
  const auto at = std::mismatch(is.begin(), is.end(), expected.begin(), expected.end()).first - is.begin();
  const auto from = [&](const TokenIds& ids) {
    const auto begin = ids.begin() + at, end = begin + std::min(kShown, std::ssize(ids) - at);
    return begin == end ? std::string("nothing") : fmt::format("{}", fmt::join(begin, end, " "));
  };
  return fmt::format("{} where {} is expected, from token {} on", from(is), from(expected), at);
}

std::string describe(const std::string& is, const std::string& expected) {
  return fmt::format("{} where {} is expected", quote_text(is), quote_text(expected));
}

}  // namespace

TokenizerCases check_tokenizer_cases(const Tokenizer& tokenizer, const std::filesystem::path& cases_file) {
  const std::string where = cases_file.string();
  // A list, in an object that the bounded reader takes.
  const std::string list = read_text_file(cases_file, kMostCasesBytes, ExitCode::bad_input_file);
  const nlohmann::json document = parse_tokenizer_json("{\"cases\":" + list + "}", where);
  TokenizerCases report;
  for (const TokenizerNode& node : TokenizerNode(document, where, "").items("cases")) {
    const std::string text = node.text("text");
    const TokenIds ids = read_ids(node, "ids"), plain_ids = read_ids(node, "plain_ids");
    std::string wrong;
    const auto compare = [&](const char* what, const auto& is, const auto& expected) {
      if (wrong.empty() && is != expected) wrong = fmt::format("{}: {}", what, describe(is, expected));
    };
    compare("ids", tokenizer.encode(text, Specials::add), ids);
    compare("plain_ids", tokenizer.encode(text, Specials::skip), plain_ids);
    compare("decoded", tokenizer.decode(plain_ids, Specials::add), node.text("decoded"));
    compare("decoded_without_special", tokenizer.decode(ids, Specials::skip), node.text("decoded_without_special"));
    if (!wrong.empty() && report.differ++ == 0)
      report.first = fmt::format("case {}, text {}, {}", report.cases, quote_text(text), wrong);
    ++report.cases;
  }
  if (report.cases == 0)
    throw UserError(ExitCode::bad_input_file, where + " holds no case", "name a folder with cases");
  return report;
}

}  // namespace lockstep

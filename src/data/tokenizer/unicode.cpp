#include "data/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "base/error.h"
#include "data/tokenizer/utf8.h"

namespace lockstep {
namespace {

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::nfc:
      normalizer = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::nfd:
      normalizer = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::nfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::nfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  if (U_FAILURE(status) || normalizer == nullptr)
    throw EnvironmentError(fmt::format("ICU gives no normal forms: {}", u_errorName(status)));
  return *normalizer;
}

// ICU counts in 32 bits. A piece ends before a space, which combines with nothing before it.
constexpr std::size_t kPieceBytes = 1 << 24;

}  // namespace

void append_normalized(NormalForm form, std::string_view text, std::string& out) {
  const icu::Normalizer2& normalizer = normalizer_of(form);
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > kPieceBytes) {
      end = text.find(' ', kPieceBytes);
      if (end == std::string_view::npos) end = text.size();
    }
    if (end > (std::size_t{1} << 30))
      throw UserError(ExitCode::bad_input_file, "a text has more than a gigabyte without a space", "split it");
    UErrorCode status = U_ZERO_ERROR;
    icu::StringByteSink<std::string> sink(&out);
    normalizer.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(end)), sink, nullptr, status);
    if (U_FAILURE(status)) throw EnvironmentError(fmt::format("ICU cannot normalize: {}", u_errorName(status)));
    text.remove_prefix(end);
  }
}

void append_lowercase(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size(); at += utf8_bytes(text[at])) {
    const char32_t c = utf8_character(text, at);
    if (c == 0x130) {
      out += "i\xCC\x87";  // the one character that becomes two
    } else {
      append_utf8(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
    }
  }
}

bool is_number(char32_t character) { return (U_GET_GC_MASK(static_cast<UChar32>(character)) & U_GC_N_MASK) != 0; }

bool is_word_character(char32_t character) {
  const auto c = static_cast<UChar32>(character);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

void require_unicode(const std::string&) {}

}  // namespace lockstep

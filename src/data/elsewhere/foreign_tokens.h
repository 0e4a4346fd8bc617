// Token files that other programs wrote, mapped and read in place: Megatron-LM's, llm.c's, and ids without a header
// (open_tokens.h says which file is which).
//
// Opening checks what the headers say against the files' sizes. The forms hold no checksum, so fingerprint() is of the
// size, of the index, and of 4 KiB at each of up to 1,024 places spread over the ids: another file of the same size is
// noticed unless it differs only between them.
//
// Threads, failure: document_tokens.h.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "data/document_tokens.h"
#include "data/elsewhere/megatron_index.h"

namespace lockstep {

class ForeignTokens final : public DocumentTokens {
 public:
  // Ids of this type from byte `begin` to the end of the file; exactly `tokens` of them where that is said.
  ForeignTokens(const std::filesystem::path& path, std::string_view form, StoredId type, std::size_t begin,
                std::optional<std::uint64_t> tokens, std::int64_t vocabulary);
  // Megatron-LM's.
  ForeignTokens(const std::filesystem::path& bin, const std::filesystem::path& idx, std::int64_t vocabulary);

  std::int64_t tokens() const override { return tokens_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override;
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::int64_t documents() const override { return index_ ? index_->documents() : 0; }
  std::pair<std::int64_t, std::int64_t> document(std::int64_t index) const override;
  void verify() const override;
  std::string_view form() const override { return form_; }

 private:
  void seal();

  MappedFile file_;
  std::unique_ptr<MappedFile> index_file_;
  std::optional<MegatronIndex> index_;
  std::string name_;
  std::string_view form_;
  StoredId type_;
  std::size_t begin_ = 0;
  std::int64_t tokens_ = 0, vocabulary_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace lockstep

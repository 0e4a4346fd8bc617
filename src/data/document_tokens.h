// A file of tokens that may know where its documents are.
//
// Threads: as token_source.h. Failure: UserError (bad_input_file) where the file turns out to be damaged.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

#include "data/token_source.h"

namespace lockstep {

class DocumentTokens : public TokenSource {
 public:
  virtual std::int64_t documents() const = 0;  // 0: not known
  // The tokens [first, second) of a document; one that another program wrote may be empty. ProgramError unless index is
  // in [0, documents()).
  virtual std::pair<std::int64_t, std::int64_t> document(std::int64_t index) const = 0;
  bool each_document(const VisitDocument& visit) const override {
    for (std::int64_t i = 0; i < documents(); ++i)
      if (const auto [first, end] = document(i); first < end) visit(first, end - first);
    return documents() > 0;
  }
  virtual void verify() const = 0;            // reads everything; throws at the first thing that is wrong
  virtual std::string_view form() const = 0;  // "a Megatron-LM indexed dataset"
};

}  // namespace lockstep

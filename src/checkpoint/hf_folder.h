// A Hugging Face model folder: config.json with model.safetensors, or with model.safetensors.index.json and the shards
// it names. Read, and written.
//
// Reading. Opening proves config.json (spec/model/hf_config.h), every file's header, and the index against the files:
// file names plain (disk.h), every tensor in the file the index says, and no tensor in a file the index does not name.
// Where a folder has both forms, the single file counts, as in transformers.
//
// Writing. export_hf makes a folder that transformers loads: config.json (spec/model/hf_config_writer.h) and the
// weights, converted to one float type on the way, in shards above a limit, with metadata {"format": "pt"}, and the
// companions of the folder that the model came from (hf_companions.h) as they were. All of it is written and synced
// beside, in .partial-NAME, and then takes the folder's place in one rename. A folder may be absent, empty or a
// previous export, known by its file .lockstep-export and by holding nothing but what that lists; any other is refused
// unless `replace` says so. Then everything in it is removed. A folder that has folders inside is refused even so: it
// is not a model's.
//
// Failure: reading: UserError (bad_input_file) naming the file and the tensor. Writing: UserError (usage) for a folder
// that is refused, EnvironmentError for the disk; whatever was there is as it was.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/hf_companions.h"
#include "checkpoint/safetensors.h"
#include "spec/model/model_spec.h"
#include "spec/model/parameters.h"

namespace lockstep {

class HfFolder {
 public:
  explicit HfFolder(const std::filesystem::path& folder);

  const ModelSpec& spec() const { return spec_; }
  std::vector<std::filesystem::path> files() const;  // of the weights
  // Views into the files, in the order asked for (hf_tensors.h says what else the files may hold); this outlives them.
  std::vector<ConstTensor> find(const std::vector<LogicalTensor>& wanted) const;

 private:
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path folder_;
  ModelSpec spec_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

struct HfTensor {
  LogicalTensor tensor;
  ConstTensor values;  // on the host, contiguous, any shape of as many elements, any float type
};

// A file beside config.json of a model whose tokens are bytes: no tokenizer of Hugging Face's would say so.
inline constexpr const char* kByteMark = "lockstep_tokenizer.json";

struct HfExport {
  std::filesystem::path folder;
  ModelSpec spec;
  DType dtype = DType::f32;                  // of the weights in the files
  std::int64_t shard_limit = 5'000'000'000;  // bytes of tensors a file holds, unless a single one has more
  bool replace = false;                      // also a folder that is no previous export
  std::vector<HfCompanion> companions = {};  // config.json gives its fields without arithmetic, the others are copied
  bool bytes = false;                        // its tokens are bytes of text, which kByteMark then says
};

void export_hf(const HfExport& what, std::span<const HfTensor> tensors, const Disk& disk = Disk());

}  // namespace lockstep

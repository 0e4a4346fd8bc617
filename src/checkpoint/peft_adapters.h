// Adapters of a folder as PEFT writes it, and as `lockstep export --adapter` does (peft_folder.h): adapter_config.json
// and adapter_model.safetensors, read in place.
//
// Taken are LoRA adapters of projections: one rank and one alpha for all, without bias, modules of their own, DoRA or
// rank-stabilized scale. Whatever else the config asks for is refused by its name, since it would change what the
// adapters mean.
//
// Failure: UserError (bad_input_file) naming the file and the field or tensor.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "spec/model/parameters.h"
#include "spec/run/lora_spec.h"

namespace lockstep {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";
inline constexpr const char* kBaseFingerprint = "lockstep_base";  // in the metadata of the weights

// Whether this is a folder of adapters and no model's.
bool holds_adapters_alone(const std::filesystem::path& folder);

class PeftAdapters {
 public:
  explicit PeftAdapters(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& base() const { return base_; }  // as the config names it: a path, or a name of a hub
  const LoraSpec& lora() const { return lora_; }     // `base`: the fingerprint, where the file has one
  bool adapts(const std::string& projection) const { return file_.contains(lora_a_name(projection)); }
  // A matrix of that shape; require_for() has found it.
  ConstTensor matrix(const std::string& name) const { return file_.tensor(name); }
  std::int64_t parameters() const;
  // Unless every tensor is a matrix of an adapter of one of these weights, and of its size.
  void require_for(const std::vector<LogicalTensor>& tensors, bool in_out_weights) const;

 private:
  std::filesystem::path folder_;
  SafetensorsFile file_;
  std::string base_;
  LoraSpec lora_;
};

}  // namespace lockstep

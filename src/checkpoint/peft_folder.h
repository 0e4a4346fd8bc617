// Adapters as a folder that PEFT loads beside the base: adapter_config.json and adapter_model.safetensors, and the
// tokenizer's files of the model that they were trained beside.
//
// Tensors have PEFT's names and shapes, A (rank, in) and B (out, rank) also where the model stores its weights (in,
// out) (fan_in_fan_out). Written as an export is (hf_folder.h): beside, and then in the folder's place in one rename.
//
// Failure: as export_hf.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/hf_folder.h"
#include "spec/run/lora_spec.h"

namespace lockstep {

struct PeftExport {
  std::filesystem::path folder;
  ModelSpec spec;
  LoraSpec lora;
  std::string base;  // where it is, as people and PEFT read it
  DType dtype = DType::f32;
  bool replace = false;
  std::vector<HfCompanion> companions = {};
  bool bytes = false;
};

// The adapters' tensors, by the names that they have in training.
void export_peft(const PeftExport& what, std::span<const HfTensor> tensors, const Disk& disk = Disk());

// What adapter_config.json says.
std::string peft_config_text(const PeftExport& what);

}  // namespace lockstep

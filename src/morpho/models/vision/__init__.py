"""Models of images besides ViT and ResNet: CLIP, which compares images with texts."""
